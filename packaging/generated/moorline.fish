# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_moorline_global_optspecs
    string join \n listen= admin-listen= path= legacy-sse= allow-host= allow-origin= shards= ring-entries= max-connections= auth= allow-anonymous= auth-resource= auth-server= auth-scope= jwt-issuer= jwt-audience= jwt-keys= jwt-algorithm= jwt-skew= max-connections-per-address= max-connections-per-principal= max-sessions-per-client= max-streams-per-client= max-body-memory-per-client= max-session-rate= max-bad-token-rate= max-sessions= session-idle-timeout= handshake-timeout= keep-alive= listener-policy= response-mode= sse-after= priming= retry= request-timeout= replay-events= replay-bytes= replay-ttl= fresh-get-fallback= memory-limit= max-body= max-message= write-buffer= header-timeout= body-timeout= idle-timeout= write-timeout= stdio-mode= children= max-children= child-inherit= child-env= child-dir= child-start-timeout= child-grace= drain= access-log-sample= log-level= log-format= config= print-config check h/help V/version
end

function __fish_moorline_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_moorline_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_moorline_using_subcommand
    set -l cmd (__fish_moorline_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c moorline -n "__fish_moorline_needs_command" -l listen -d 'Address to listen on; may be repeated; port 0 lets the kernel choose' -r
complete -c moorline -n "__fish_moorline_needs_command" -l admin-listen -d 'Loopback address for /publish, /metrics, health and the live page [default: off]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l path -d 'Path of the MCP endpoint' -r
complete -c moorline -n "__fish_moorline_needs_command" -l legacy-sse -d 'Serve HTTP+SSE of 2024-11-05 on /sse and /messages [default: on if every --listen is loopback]' -r -f -a "on\t'Yes'
off\t'No'"
complete -c moorline -n "__fish_moorline_needs_command" -l allow-host -d 'Host header to accept, or * for all; may be repeated [default: this machine\'s loopback names]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l allow-origin -d 'Origin header to accept, or * for all; may be repeated [default: loopback origins]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l shards -d 'Threads to serve with, 1 to 256 [default: one for each usable core]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l ring-entries -d 'Submission queue entries of each thread\'s ring, a power of two' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-connections -d 'Connections at one time [default: what the open-file limit allows]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l auth -d 'What clients have to bring: none, tokens=FILE or jwt; the file is read again on SIGHUP' -r
complete -c moorline -n "__fish_moorline_needs_command" -l allow-anonymous -d 'Let everybody in from other machines, too, where --auth is none' -r -f -a "on\t'Yes'
off\t'No'"
complete -c moorline -n "__fish_moorline_needs_command" -l auth-resource -d 'The endpoint\'s URL as clients know it [default: a URL among --jwt-audience, or as requested]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l auth-server -d 'Authorization server that clients are referred to; may be repeated [default: the issuer]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l auth-scope -d 'Scope that a JWT must have; may be repeated: all of them [default: none]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l jwt-issuer -d 'Issuer of JWTs, exactly as in their iss [default: none]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l jwt-audience -d 'Audience that JWTs are for, as in their aud; may be repeated: one of them [default: none]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l jwt-keys -d 'File with the issuer\'s public keys, a JWK Set; it is read again on SIGHUP [default: none]' -r -F
complete -c moorline -n "__fish_moorline_needs_command" -l jwt-algorithm -d 'Signature algorithm of JWTs; may be repeated' -r -f -a "RS256\t''
RS384\t''
RS512\t''
PS256\t''
PS384\t''
PS512\t''
ES256\t''
ES384\t''
EdDSA\t''"
complete -c moorline -n "__fish_moorline_needs_command" -l jwt-skew -d 'What the clocks of the issuer and this host may differ by' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-connections-per-address -d 'Connections of one address; set by hand it bounds this machine\'s own, too [default: a sixteenth of --max-connections]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-connections-per-principal -d 'Connections of one principal, wherever they come from [default: a sixteenth of --max-connections]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-sessions-per-client -d 'Sessions of one principal, or of one address where --auth is none [default: a sixteenth of --max-sessions]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-streams-per-client -d 'Streams that listen, of either era, of one principal, or of one address where --auth is none [default: a sixteenth of --max-sessions]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-body-memory-per-client -d 'Bytes that bodies over 4 KiB of the same may hold together, on their way and in calls, and such replies until they are written; as much again of those that were not taken, and of what is kept for replay; at least --max-body [default: a sixteenth of --memory-limit]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-session-rate -d 'Sessions that the same may begin per second, ten seconds\' worth at once [default: 100]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-bad-token-rate -d 'Bad tokens of one address per second, ten seconds\' worth at once; beyond it they get 429, and of JWTs most unknown ones without a look [default: 10]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-sessions -d 'Sessions at one time' -r
complete -c moorline -n "__fish_moorline_needs_command" -l session-idle-timeout -d 'End a session after this long without activity' -r
complete -c moorline -n "__fish_moorline_needs_command" -l handshake-timeout -d 'End a session that does nothing after initialize' -r
complete -c moorline -n "__fish_moorline_needs_command" -l keep-alive -d 'Send a comment on a stream that was silent for this long; 0 disables' -r
complete -c moorline -n "__fish_moorline_needs_command" -l listener-policy -d 'Which GET of a session receives its messages' -r -f -a "first\t'The first one, as long as it is alive'
latest\t'The latest one, for proxies that keep dead listeners open'"
complete -c moorline -n "__fish_moorline_needs_command" -l response-mode -d 'How a POST is answered' -r -f -a "auto\t'As JSON if the response comes first and soon, else as a stream'
sse\t'Always as a stream'
json\t'Always as JSON'"
complete -c moorline -n "__fish_moorline_needs_command" -l sse-after -d 'Make a reply a stream when nothing came for this long' -r
complete -c moorline -n "__fish_moorline_needs_command" -l priming -d 'Which streams of 2025-11-25 start with a priming event' -r -f -a "auto\t'All'
post\t'Those of POSTs'
off\t'None'"
complete -c moorline -n "__fish_moorline_needs_command" -l retry -d 'How long clients should wait before they reconnect' -r
complete -c moorline -n "__fish_moorline_needs_command" -l request-timeout -d 'Fail a call that has not answered after this long' -r
complete -c moorline -n "__fish_moorline_needs_command" -l replay-events -d 'Events kept for replay in each session' -r
complete -c moorline -n "__fish_moorline_needs_command" -l replay-bytes -d 'Bytes kept for replay in each session' -r
complete -c moorline -n "__fish_moorline_needs_command" -l replay-ttl -d 'How long an interrupted stream can be resumed; longer than --write-timeout' -r
complete -c moorline -n "__fish_moorline_needs_command" -l fresh-get-fallback -d 'Give a plain GET the replies that were lost with their POST' -r -f -a "on\t'Yes'
off\t'No'"
complete -c moorline -n "__fish_moorline_needs_command" -l memory-limit -d 'Refuse new sessions, new streams and large bodies while more than this is held for clients [default: none]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-body -d 'Largest request body' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-message -d 'Largest message of the backend' -r
complete -c moorline -n "__fish_moorline_needs_command" -l write-buffer -d 'Bytes that may wait behind the message being written to a stream' -r
complete -c moorline -n "__fish_moorline_needs_command" -l header-timeout -d 'From the first byte of a request to the end of its header' -r
complete -c moorline -n "__fish_moorline_needs_command" -l body-timeout -d 'From the end of the header to the end of the body' -r
complete -c moorline -n "__fish_moorline_needs_command" -l idle-timeout -d 'Between two requests of a connection' -r
complete -c moorline -n "__fish_moorline_needs_command" -l write-timeout -d 'Cut a connection whose output makes no progress for this long' -r
complete -c moorline -n "__fish_moorline_needs_command" -l stdio-mode -d 'Who shares its processes' -r -f -a "auto\t'All clients, if the program speaks 2026-07-28 and nothing older; otherwise as per-session'
per-session\t'Each session has its own'
shared\t'All sessions share a few'"
complete -c moorline -n "__fish_moorline_needs_command" -l children -d 'Processes where they are shared, at least one for each thread; fewer threads are started otherwise [default: one for each thread]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l max-children -d 'Processes at one time; a further session gets 503 [default: 256, or what the open-file limit allows]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l child-inherit -d 'Which of this server\'s environment variables they get' -r -f -a "all\t'All'
basic\t'HOME, LANG, LOGNAME, PATH, SHELL, TERM, TMPDIR, TZ and USER'
none\t'None'"
complete -c moorline -n "__fish_moorline_needs_command" -l child-env -d 'Variable they get besides; may be repeated [default: none]' -r
complete -c moorline -n "__fish_moorline_needs_command" -l child-dir -d 'Directory they run in [default: this server\'s own]' -r -F
complete -c moorline -n "__fish_moorline_needs_command" -l child-start-timeout -d 'What they get to answer initialize' -r
complete -c moorline -n "__fish_moorline_needs_command" -l child-grace -d 'From the end of their input to KILL; TERM is sent after a second, or half of it' -r
complete -c moorline -n "__fish_moorline_needs_command" -l drain -d 'What running calls get to finish after SIGTERM or SIGINT' -r
complete -c moorline -n "__fish_moorline_needs_command" -l access-log-sample -d 'Part of requests that get a line in the log, 0 to 1; at --log-level info or below' -r
complete -c moorline -n "__fish_moorline_needs_command" -l log-level -d 'The least severe events that are logged, to stderr' -r -f -a "off\t'Nothing'
error\t'What failed'
warn\t'And what looks wrong'
info\t'And what an operator wants to know'
debug\t'And what a developer wants to know'
trace\t'And every step'"
complete -c moorline -n "__fish_moorline_needs_command" -l log-format -d 'How they are written' -r -f -a "text\t'For people'
json\t'One JSON object per line'"
complete -c moorline -n "__fish_moorline_needs_command" -l config -d 'TOML file with settings [default: none]' -r -F
complete -c moorline -n "__fish_moorline_needs_command" -l print-config -d 'Print every setting with its value and where that comes from, and exit'
complete -c moorline -n "__fish_moorline_needs_command" -l check -d 'See whether all settings could be served, and exit'
complete -c moorline -n "__fish_moorline_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c moorline -n "__fish_moorline_needs_command" -s V -l version -d 'Print version'
complete -c moorline -n "__fish_moorline_needs_command" -a "serve" -d 'Serve MCP over HTTP; this is also what happens without a command'
complete -c moorline -n "__fish_moorline_needs_command" -a "doctor" -d 'Say what this host can hold, what binds first, and how to lift it'
complete -c moorline -n "__fish_moorline_needs_command" -a "token" -d 'Make a bearer token, and print it with its line for the file of --auth tokens=FILE'
complete -c moorline -n "__fish_moorline_needs_command" -a "generate" -d 'Print shell completions or the manual page'
complete -c moorline -n "__fish_moorline_needs_command" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l listen -d 'Address to listen on; may be repeated; port 0 lets the kernel choose' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l admin-listen -d 'Loopback address for /publish, /metrics, health and the live page [default: off]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l path -d 'Path of the MCP endpoint' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l legacy-sse -d 'Serve HTTP+SSE of 2024-11-05 on /sse and /messages [default: on if every --listen is loopback]' -r -f -a "on\t'Yes'
off\t'No'"
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l allow-host -d 'Host header to accept, or * for all; may be repeated [default: this machine\'s loopback names]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l allow-origin -d 'Origin header to accept, or * for all; may be repeated [default: loopback origins]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l shards -d 'Threads to serve with, 1 to 256 [default: one for each usable core]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l ring-entries -d 'Submission queue entries of each thread\'s ring, a power of two' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-connections -d 'Connections at one time [default: what the open-file limit allows]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l auth -d 'What clients have to bring: none, tokens=FILE or jwt; the file is read again on SIGHUP' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l allow-anonymous -d 'Let everybody in from other machines, too, where --auth is none' -r -f -a "on\t'Yes'
off\t'No'"
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l auth-resource -d 'The endpoint\'s URL as clients know it [default: a URL among --jwt-audience, or as requested]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l auth-server -d 'Authorization server that clients are referred to; may be repeated [default: the issuer]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l auth-scope -d 'Scope that a JWT must have; may be repeated: all of them [default: none]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l jwt-issuer -d 'Issuer of JWTs, exactly as in their iss [default: none]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l jwt-audience -d 'Audience that JWTs are for, as in their aud; may be repeated: one of them [default: none]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l jwt-keys -d 'File with the issuer\'s public keys, a JWK Set; it is read again on SIGHUP [default: none]' -r -F
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l jwt-algorithm -d 'Signature algorithm of JWTs; may be repeated' -r -f -a "RS256\t''
RS384\t''
RS512\t''
PS256\t''
PS384\t''
PS512\t''
ES256\t''
ES384\t''
EdDSA\t''"
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l jwt-skew -d 'What the clocks of the issuer and this host may differ by' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-connections-per-address -d 'Connections of one address; set by hand it bounds this machine\'s own, too [default: a sixteenth of --max-connections]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-connections-per-principal -d 'Connections of one principal, wherever they come from [default: a sixteenth of --max-connections]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-sessions-per-client -d 'Sessions of one principal, or of one address where --auth is none [default: a sixteenth of --max-sessions]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-streams-per-client -d 'Streams that listen, of either era, of one principal, or of one address where --auth is none [default: a sixteenth of --max-sessions]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-body-memory-per-client -d 'Bytes that bodies over 4 KiB of the same may hold together, on their way and in calls, and such replies until they are written; as much again of those that were not taken, and of what is kept for replay; at least --max-body [default: a sixteenth of --memory-limit]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-session-rate -d 'Sessions that the same may begin per second, ten seconds\' worth at once [default: 100]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-bad-token-rate -d 'Bad tokens of one address per second, ten seconds\' worth at once; beyond it they get 429, and of JWTs most unknown ones without a look [default: 10]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-sessions -d 'Sessions at one time' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l session-idle-timeout -d 'End a session after this long without activity' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l handshake-timeout -d 'End a session that does nothing after initialize' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l keep-alive -d 'Send a comment on a stream that was silent for this long; 0 disables' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l listener-policy -d 'Which GET of a session receives its messages' -r -f -a "first\t'The first one, as long as it is alive'
latest\t'The latest one, for proxies that keep dead listeners open'"
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l response-mode -d 'How a POST is answered' -r -f -a "auto\t'As JSON if the response comes first and soon, else as a stream'
sse\t'Always as a stream'
json\t'Always as JSON'"
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l sse-after -d 'Make a reply a stream when nothing came for this long' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l priming -d 'Which streams of 2025-11-25 start with a priming event' -r -f -a "auto\t'All'
post\t'Those of POSTs'
off\t'None'"
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l retry -d 'How long clients should wait before they reconnect' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l request-timeout -d 'Fail a call that has not answered after this long' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l replay-events -d 'Events kept for replay in each session' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l replay-bytes -d 'Bytes kept for replay in each session' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l replay-ttl -d 'How long an interrupted stream can be resumed; longer than --write-timeout' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l fresh-get-fallback -d 'Give a plain GET the replies that were lost with their POST' -r -f -a "on\t'Yes'
off\t'No'"
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l memory-limit -d 'Refuse new sessions, new streams and large bodies while more than this is held for clients [default: none]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-body -d 'Largest request body' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-message -d 'Largest message of the backend' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l write-buffer -d 'Bytes that may wait behind the message being written to a stream' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l header-timeout -d 'From the first byte of a request to the end of its header' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l body-timeout -d 'From the end of the header to the end of the body' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l idle-timeout -d 'Between two requests of a connection' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l write-timeout -d 'Cut a connection whose output makes no progress for this long' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l stdio-mode -d 'Who shares its processes' -r -f -a "auto\t'All clients, if the program speaks 2026-07-28 and nothing older; otherwise as per-session'
per-session\t'Each session has its own'
shared\t'All sessions share a few'"
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l children -d 'Processes where they are shared, at least one for each thread; fewer threads are started otherwise [default: one for each thread]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l max-children -d 'Processes at one time; a further session gets 503 [default: 256, or what the open-file limit allows]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l child-inherit -d 'Which of this server\'s environment variables they get' -r -f -a "all\t'All'
basic\t'HOME, LANG, LOGNAME, PATH, SHELL, TERM, TMPDIR, TZ and USER'
none\t'None'"
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l child-env -d 'Variable they get besides; may be repeated [default: none]' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l child-dir -d 'Directory they run in [default: this server\'s own]' -r -F
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l child-start-timeout -d 'What they get to answer initialize' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l child-grace -d 'From the end of their input to KILL; TERM is sent after a second, or half of it' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l drain -d 'What running calls get to finish after SIGTERM or SIGINT' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l access-log-sample -d 'Part of requests that get a line in the log, 0 to 1; at --log-level info or below' -r
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l log-level -d 'The least severe events that are logged, to stderr' -r -f -a "off\t'Nothing'
error\t'What failed'
warn\t'And what looks wrong'
info\t'And what an operator wants to know'
debug\t'And what a developer wants to know'
trace\t'And every step'"
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l log-format -d 'How they are written' -r -f -a "text\t'For people'
json\t'One JSON object per line'"
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l config -d 'TOML file with settings [default: none]' -r -F
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l print-config -d 'Print every setting with its value and where that comes from, and exit'
complete -c moorline -n "__fish_moorline_using_subcommand serve" -l check -d 'See whether all settings could be served, and exit'
complete -c moorline -n "__fish_moorline_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c moorline -n "__fish_moorline_using_subcommand doctor" -l streams -d 'Streams to be held at one time, for which to say what is missing' -r
complete -c moorline -n "__fish_moorline_using_subcommand doctor" -l json -d 'Print JSON'
complete -c moorline -n "__fish_moorline_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c moorline -n "__fish_moorline_using_subcommand token" -s h -l help -d 'Print help'
complete -c moorline -n "__fish_moorline_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -s h -l help -d 'Print help'
complete -c moorline -n "__fish_moorline_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -f -a "completions" -d 'Completions for a shell'
complete -c moorline -n "__fish_moorline_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -f -a "man" -d 'The manual page, as roff'
complete -c moorline -n "__fish_moorline_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c moorline -n "__fish_moorline_using_subcommand generate; and __fish_seen_subcommand_from completions" -s h -l help -d 'Print help'
complete -c moorline -n "__fish_moorline_using_subcommand generate; and __fish_seen_subcommand_from man" -s h -l help -d 'Print help'
complete -c moorline -n "__fish_moorline_using_subcommand generate; and __fish_seen_subcommand_from help" -f -a "completions" -d 'Completions for a shell'
complete -c moorline -n "__fish_moorline_using_subcommand generate; and __fish_seen_subcommand_from help" -f -a "man" -d 'The manual page, as roff'
complete -c moorline -n "__fish_moorline_using_subcommand generate; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c moorline -n "__fish_moorline_using_subcommand help; and not __fish_seen_subcommand_from serve doctor token generate help" -f -a "serve" -d 'Serve MCP over HTTP; this is also what happens without a command'
complete -c moorline -n "__fish_moorline_using_subcommand help; and not __fish_seen_subcommand_from serve doctor token generate help" -f -a "doctor" -d 'Say what this host can hold, what binds first, and how to lift it'
complete -c moorline -n "__fish_moorline_using_subcommand help; and not __fish_seen_subcommand_from serve doctor token generate help" -f -a "token" -d 'Make a bearer token, and print it with its line for the file of --auth tokens=FILE'
complete -c moorline -n "__fish_moorline_using_subcommand help; and not __fish_seen_subcommand_from serve doctor token generate help" -f -a "generate" -d 'Print shell completions or the manual page'
complete -c moorline -n "__fish_moorline_using_subcommand help; and not __fish_seen_subcommand_from serve doctor token generate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c moorline -n "__fish_moorline_using_subcommand help; and __fish_seen_subcommand_from generate" -f -a "completions" -d 'Completions for a shell'
complete -c moorline -n "__fish_moorline_using_subcommand help; and __fish_seen_subcommand_from generate" -f -a "man" -d 'The manual page, as roff'
