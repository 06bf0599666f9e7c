# apart.sh: the test that sources it starts again in a network namespace of its own, where this machine has
# such. The names of locks on cores belong to a namespace, so that no run of another test shares a core with
# one of its own, which would say so. Its loopback works; there is no other network.
# shellcheck shell=bash disable=SC2016
if [ -z "${TANDEM_TEST_APART:-}" ]; then
    apart=(unshare --net)
    [ "$(id -u)" = 0 ] || apart=(unshare --user --map-root-user --net)
    ! "${apart[@]}" ip link set lo up 2>/dev/null || TANDEM_TEST_APART=1 exec "${apart[@]}" \
        bash -c 'ip link set lo up && exec "$0"' "$0"
fi
unset TANDEM_TEST_APART
