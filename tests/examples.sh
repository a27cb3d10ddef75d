# examples.sh - runs the examples in NAMES, which `make examples` has built, from the top of the tree. Each checks
# itself and exits with 0 when it is content.
. tests/items.sh

item_run() {
    log=$out/$1.log
    if "$out/$1" >"$log" 2>&1; then ok "$1: $(tail -n 1 "$log")"; else failed "$1" "$log"; fi
}

items "$1" $(for name in $NAMES; do echo "run:$name"; done)
