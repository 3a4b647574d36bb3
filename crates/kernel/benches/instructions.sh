#!/bin/sh
# Instructions per pick + charge + requeue, by callgrind: the difference of two runs, so that setting up does not count. FIFO policies must be
# flat from 1,000 to 1,000,000 coroutines, Fair logarithmic. Needs valgrind.
set -eu
cd "$(dirname "$0")/../../.."
bench=$(cargo bench -p wavelock-kernel --bench kernel --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\)).*/\1/p')
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$bench" count "$1" "$2" "$3" 2>&1 | sed -n 's/.*refs: *//p' | tr -d ', '
}
failed=0
echo "| policy | ready | instructions |"
echo "|---|---:|---:|"
for policy in cooperative round-robin priority-fixed priority-aging priority-token progress-aware fair; do
    for ready in 1000 1000000; do
        few=$(count "$policy" "$ready" 10000)
        many=$(count "$policy" "$ready" 110000)
        each=$(( (many - few) / 100000 ))
        echo "| $policy | $ready | $each |"
        case "$policy:$ready" in
        cooperative:1000 | round-robin:1000) few_ready=$each ;;
        cooperative:1000000 | round-robin:1000000)
            if [ "$each" -gt $(( few_ready + 4 )) ]; then
                echo "$policy is not flat: $few_ready at 1,000 ready, $each at 1,000,000" >&2
                failed=1
            fi
            ;;
        esac
        if [ "$policy" = round-robin ] && [ "$each" -gt 360 ]; then
            echo "round robin needs $each instructions, more than 360" >&2
            failed=1
        fi
    done
done
# Contexts: the tier must be logarithmic, and a lane without it must not pay for it.
for ready in 100 1000 10000; do
    few=$(count contexts "$ready" 10000)
    many=$(count contexts "$ready" 110000)
    each=$(( (many - few) / 100000 ))
    echo "| contexts | $ready | $each |"
    if [ "$ready" = 1000 ]; then thousand=$each; fi
done
if [ "$each" -gt $(( thousand * 2 )) ]; then
    echo "a pick among 10,000 contexts needs $each instructions, more than twice the $thousand of 1,000" >&2
    failed=1
fi
few=$(count tier 1000 10000)
many=$(count tier 1000 110000)
echo "| round-robin, contexts possible and none made | 1000 | $(( (many - few) / 100000 )) |"
exit $failed
