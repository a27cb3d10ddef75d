# examples.sh - runs the examples in NAMES, which `make examples` has built, from the top of the tree. Each
# checks itself and exits with 0 when it is content.
. tests/items.sh

item_run() {
    log=$out/$1.log
    case $1 in # where SVG files go
    textbook|heads|kernel_regression|fit_kernel) pictures=$out/pictures ;;
    tiny_gpt) pictures="--svg $out/pictures/tiny_gpt.svg" ;;
    *) pictures= ;;
    esac
    if "$out/$1" $pictures >"$log" 2>&1; then ok "$1"; else failed "$1" "$log"; fi
}

mkdir -p "$out/pictures"

items "$1" $(for name in $NAMES; do echo "run:$name"; done)
