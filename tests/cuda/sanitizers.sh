# sanitizers.sh - sourced after items.sh: the flags with which the emulator runs under the address sanitizer and the one
# of undefined behaviour, for which a load that is not aligned is an error as it is on a GPU. Threads of a block are
# fibers: their stacks are larger and not looked at. Left out, to compile sooner, is what the first one
# finds as well (an access by a null pointer, or beyond an object) or the compiler says (no return). POSIX sh.

: "${CXX:=c++}"
sanitizers() { # says the flags; 1 where this compiler or system has none
    some="-fsanitize=address,undefined -fno-sanitize=null,object-size,return"
    for no_stack in "--param asan-stack=0" "-mllvm -asan-stack=0"; do
        flags="$some -fno-sanitize-recover=all $no_stack -DATTN_EMU_STACK=1048576"
        echo 'int main() { return 0; }' | $CXX -x c++ $flags - -o "$out/sanitizers.$$" 2>/dev/null || continue
        rm -f "$out/sanitizers.$$"
        echo "$flags"
        return
    done
    return 1
}
