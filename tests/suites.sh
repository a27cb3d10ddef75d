# suites.sh - the files of the one test program: tests/*.c without the programs that stand alone.
ls tests/*.c | sed 's|tests/\(.*\)\.c|\1|' |
    grep -vE '^(attn|conformance|embed|exhaustive|fuzz|golden|measure|mutate|old_caller|walk)$'
