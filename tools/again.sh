#!/usr/bin/env bash
# Runs `make test` ten times in a row: three times beside eight busy loops, once in another order. Prints what the runs of
# pytest said; the logs are in build/again. Fails if one of the ten failed. `again.sh 2` runs it twice (the first two).
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/again
failed=0 loops=()
stop_loops() {
    for loop in "${loops[@]}"; do kill "$loop"; done
    wait "${loops[@]}" 2>/dev/null
    loops=()
}
trap stop_loops EXIT # also at Ctrl-C, which loops in the background ignore
for number in $(seq 1 "${1:-10}"); do
    log=build/again/$number.log how="as it is" started=$SECONDS
    unset EMBERSTATE_ORDER
    case $number in
        2 | 5 | 8) how="beside eight busy loops" ;;
        3) export EMBERSTATE_ORDER=$RANDOM; how="in order $EMBERSTATE_ORDER" ;;
    esac
    if [ "$how" = "beside eight busy loops" ]; then
        for _ in 1 2 3 4 5 6 7 8; do
            while :; do :; done &
            loops+=($!)
        done
    fi
    make test </dev/null >"$log" 2>&1 && said=passed || { said=FAILED; failed=$((failed + 1)); }
    stop_loops
    echo "$number: $said in $((SECONDS - started)) s, $how"
    grep -E "^[0-9]+ (passed|failed|error)|^(FAILED|ERROR) |^Failed: |^The engine's|^make.*\*\*\*" "$log" | sed 's/^/    /'
done
echo "$failed failed"
[ "$failed" -eq 0 ]
