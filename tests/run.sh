# run.sh - the suites of build/tests, JOBS (2) at a time, those that take long first. `make test` runs all, `sh
# tests/run.sh SUITE` one. What a suite says comes out together, and after it what it did beside tests/counts.txt: a
# suite that calls the library less often or checks less than it did there has failed, and so has one that is missing.
# The last line sums up. POSIX sh.
program=build/tests
dir=build/suites
mkdir -p $dir

one() { # one SUITE: into files, then out at once
    case $1 in *+amx) share="--amx --isa avx512" ;; *) share= ;; esac
    $program --suite "${1%+amx}" $share >"$dir/$1.log" 2>&1
    awk -v name="${1%+amx}" -v status=$? -v counts=tests/counts.txt -v sums="$dir/$1.sum" '
        function fails(what) { print "FAILED " name ": " what; failed++ }
        BEGIN { while ((getline line <counts) > 0) { split(line, f); if (f[1] == name) split(line, want) } }
        /^this build or CPU has no / { lacks++; next }          # told once, by all together
        $1 == name ":" && / calls, .* checks/ { calls = $2; checks = $4; sets = $7; next }
        /^[0-9]+ passed, [0-9]+ failed/ { passed = $1; failed = $3; skipped = $5 - lacks; summed = 1; next }
        { print }
        END {
            if (!summed || (status && !failed)) fails("it ended with " status " and no word of what failed")
            column = 2 * (sets > 3 ? 3 : sets)
            if (sets && calls < want[column]) fails("fewer calls than in " counts)
            if (sets && checks < want[column + 1]) fails("fewer checks than in " counts)
            printf "%s: %d passed, %d failed; %d calls, %d checks (%s: %d, %d)\n", name, passed, failed, calls, checks,
                counts, want[column], want[column + 1]
            print passed + 0, failed + 0, skipped + 0 >sums
        }' "$dir/$1.log" >"$dir/$1.text"
    until mkdir $dir/printing 2>/dev/null; do sleep 1; done
    cat "$dir/$1.text"
    rmdir $dir/printing
}
if [ -n "$1" ]; then one "$1"; exit; fi

rm -rf ${dir:?}/*
listed=$($program --list | sed 's/\..*//' | uniq)
known=$(awk '!/^#/ { print $1 }' tests/counts.txt)
# What may run on AMX, which a process has to ask for, runs once more there.
if grep -qw amx_bf16 /proc/cpuinfo 2>/dev/null; then
    by_amx="precision+amx products+amx parts+amx"
    listed="$listed $by_amx" known="$known $by_amx"
fi
printf '%s\n' $known $listed | awk -v listed="$listed" '
    BEGIN { n = split(listed, names); for (i = 1; i <= n; i++) there[names[i]] = 1 }
    there[$1] && !seen[$1]++' | xargs -P "${JOBS:-2}" -n 1 sh "$0"
for suite in $(printf '%s\n' $known $listed | sort -u); do
    [ -s $dir/$suite.sum ] || { echo "FAILED $suite: this suite did not run"; echo "0 1 0" >$dir/$suite.sum; }
done
cat $dir/*.log | grep '^this build or CPU has no ' | sort -u | tee $dir/lacks
cat $dir/*.sum | awk -v lacks="$(wc -l <$dir/lacks)" '
    { passed += $1; failed += $2; skipped += $3 }
    END { skipped += lacks
          printf "%d passed, %d failed", passed, failed
          if (skipped) printf ", %d skipped", skipped
          print ""; exit failed > 0 || passed == 0 }'
