#!/usr/bin/env bash
# service.sh CHECK: one check of the units, run inside a booted system by tests/packaging/run. The server is at
# /opt/moorline/moorline there, the units of packaging/systemd are among those of /run/systemd/system.
set -euo pipefail

begun=$(date +%s.%6N)
settings=/etc/moorline/moorline.toml
url=http://127.0.0.1:8080/mcp

it_starts_confined_and_serves() {
    mkdir -p /etc/moorline
    echo 'log-level = "info"' >"$settings"
    systemctl start moorline.service
    local status=/proc/$(main_pid)/status
    expect 'an account of its own' not grep -q '^Uid:\s0\s' "$status"
    expect 'no capabilities' grep -q '^CapBnd:\s0*$' "$status"
    expect 'a filter of system calls' grep -q '^Seccomp:\s2$' "$status"
    initialize
}

it_reloads_without_losing_a_stream() {
    initialize
    listen
    echo 'max-sessions-per-client = 7' >>"$settings"
    systemctl reload moorline.service
    eventually said 'settings reloaded.*max-sessions-per-client'
    echo 'max-sessions = "many"' >>"$settings"
    systemctl reload moorline.service || true
    eventually said "$settings:3: max-sessions"
    echo 'log-level = "info"' >"$settings"
    expect 'it serves on' initialize
    expect 'the stream is there' kill -0 "$listener"
    kill "$listener"
}

it_reads_tokens_of_its_group_and_reads_them_again() {
    /opt/moorline/moorline token alice >/run/alice 2>/dev/null
    /opt/moorline/moorline token bob >/run/bob 2>/dev/null
    groupadd --system moorline-secrets
    (umask 077 && tail -n 1 /run/alice >/etc/moorline/tokens)
    echo 'auth = "tokens=/etc/moorline/tokens"' >>"$settings"
    expect 'it does not start without the right to read them' not systemctl restart moorline.service
    eventually said 'cannot read /etc/moorline/tokens'
    chgrp moorline-secrets /etc/moorline/tokens
    chmod 640 /etc/moorline/tokens
    mkdir -p /run/systemd/system/moorline.service.d
    printf '[Service]\nSupplementaryGroups=moorline-secrets\n' >/run/systemd/system/moorline.service.d/group.conf
    systemctl daemon-reload
    systemctl start moorline.service
    expect 'alice is known' initialize "Authorization: Bearer $(head -n 1 /run/alice)"
    expect 'bob is not' not initialize "Authorization: Bearer $(head -n 1 /run/bob)"
    tail -n 1 /run/bob >>/etc/moorline/tokens
    systemctl reload moorline.service
    eventually initialize "Authorization: Bearer $(head -n 1 /run/bob)"
    echo 'log-level = "info"' >"$settings"
    systemctl restart moorline.service
}

it_ends_streams_and_stops() {
    initialize
    listen
    systemctl stop moorline.service
    expect 'the stream ended as a whole' wait "$listener"
    expect 'it ended well' test "$(property Result)" = success
    eventually said 'stopped.*streams_ended.*1'
}

it_starts_again_when_it_hangs_or_dies() {
    mkdir -p /run/systemd/system/moorline.service.d
    printf '[Service]\nWatchdogSec=2s\n' >/run/systemd/system/moorline.service.d/watchdog.conf
    systemctl daemon-reload
    systemctl start moorline.service
    sleep 5
    expect 'a watchdog that is fed lets it be' test "$(property NRestarts)" = 0
    kill -STOP "$(main_pid)"
    eventually restarted 1
    eventually initialize
    kill -KILL "$(main_pid)"
    eventually restarted 2
    eventually initialize
    systemctl stop moorline.service
}

it_does_not_try_again_with_wrong_settings() {
    echo 'max-sessions = "many"' >>"$settings"
    expect 'it does not start' not systemctl start moorline.service
    eventually said "$settings:2: max-sessions"
    sleep 1
    expect 'nobody tries again' test "$(property NRestarts)" = 0
    expect 'it has failed' test "$(property ActiveState)" = failed
    echo 'log-level = "info"' >"$settings"
    systemctl reset-failed moorline.service
}

its_socket_outlives_it() {
    systemctl start moorline.socket
    expect 'nobody has asked yet' test "$(property ActiveState)" = inactive
    expect 'the first request starts it' initialize
    local last=$((SECONDS + 4))
    # One that stops refuses newcomers with a 503, but nobody's connection.
    (while ((SECONDS < last)); do curl --silent --max-time 20 --output /dev/null "$url" || exit; done) &
    systemctl restart moorline.service
    systemctl restart moorline.service
    expect 'nobody is refused while it restarts' wait $!
    systemctl stop moorline.socket moorline.service
}

# --- What the checks are made of ------------------------------------------------------------------

property() { systemctl show moorline.service --property "$1" --value; }

main_pid() { property MainPID; }

restarted() { [[ $(property NRestarts) == "$1" && $(property ActiveState) == active ]]; }

# Whether the server has said that since the check began.
said() { grep -q -- "$1" <<<"$(journal --output cat)"; }

journal() { journalctl --quiet --unit moorline.service --since "@$begun" "$@"; }

not() { ! "$@"; }

# Begins a session, with one more field if it is given; its id is in $session.
initialize() {
    local body='{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",
        "capabilities":{},"clientInfo":{"name":"check","version":"1"}}}'
    session=$(curl --silent --fail --max-time 20 --dump-header - --output /dev/null "$url" --data "$body" \
        --header 'Content-Type: application/json' --header 'Accept: application/json, text/event-stream' \
        --header "${1:-X-None: none}" |
        sed -n 's/^mcp-session-id: \([0-9a-f]*\)\r$/\1/Ip')
    [[ -n $session ]]
}

# Holds a stream of the session; who does is in $listener.
listen() {
    rm -f /run/events
    curl --silent --no-buffer "$url" --header 'Accept: text/event-stream' --header "Mcp-Session-Id: $session" \
        --output /run/events &
    listener=$!
    eventually test -s /run/events
}

eventually() {
    local last=$((SECONDS + 15))
    until "$@"; do
        ((SECONDS < last)) || expect "in time: $*" false
        sleep 0.1
    done
}

expect() {
    "${@:2}" && return
    echo "not so: $1"
    journal --lines 20 || true
    exit 1
}

"$@"
