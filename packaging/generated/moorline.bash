_moorline() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="moorline"
                ;;
            moorline,doctor)
                cmd="moorline__subcmd__doctor"
                ;;
            moorline,generate)
                cmd="moorline__subcmd__generate"
                ;;
            moorline,help)
                cmd="moorline__subcmd__help"
                ;;
            moorline,serve)
                cmd="moorline__subcmd__serve"
                ;;
            moorline,token)
                cmd="moorline__subcmd__token"
                ;;
            moorline__subcmd__generate,completions)
                cmd="moorline__subcmd__generate__subcmd__completions"
                ;;
            moorline__subcmd__generate,help)
                cmd="moorline__subcmd__generate__subcmd__help"
                ;;
            moorline__subcmd__generate,man)
                cmd="moorline__subcmd__generate__subcmd__man"
                ;;
            moorline__subcmd__generate__subcmd__help,completions)
                cmd="moorline__subcmd__generate__subcmd__help__subcmd__completions"
                ;;
            moorline__subcmd__generate__subcmd__help,help)
                cmd="moorline__subcmd__generate__subcmd__help__subcmd__help"
                ;;
            moorline__subcmd__generate__subcmd__help,man)
                cmd="moorline__subcmd__generate__subcmd__help__subcmd__man"
                ;;
            moorline__subcmd__help,doctor)
                cmd="moorline__subcmd__help__subcmd__doctor"
                ;;
            moorline__subcmd__help,generate)
                cmd="moorline__subcmd__help__subcmd__generate"
                ;;
            moorline__subcmd__help,help)
                cmd="moorline__subcmd__help__subcmd__help"
                ;;
            moorline__subcmd__help,serve)
                cmd="moorline__subcmd__help__subcmd__serve"
                ;;
            moorline__subcmd__help,token)
                cmd="moorline__subcmd__help__subcmd__token"
                ;;
            moorline__subcmd__help__subcmd__generate,completions)
                cmd="moorline__subcmd__help__subcmd__generate__subcmd__completions"
                ;;
            moorline__subcmd__help__subcmd__generate,man)
                cmd="moorline__subcmd__help__subcmd__generate__subcmd__man"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        moorline)
            opts="-h -V --listen --admin-listen --path --legacy-sse --allow-host --allow-origin --shards --ring-entries --max-connections --auth --allow-anonymous --auth-resource --auth-server --auth-scope --jwt-issuer --jwt-audience --jwt-keys --jwt-algorithm --jwt-skew --max-connections-per-address --max-connections-per-principal --max-sessions-per-client --max-streams-per-client --max-body-memory-per-client --max-session-rate --max-bad-token-rate --max-sessions --session-idle-timeout --handshake-timeout --keep-alive --listener-policy --response-mode --sse-after --priming --retry --request-timeout --replay-events --replay-bytes --replay-ttl --fresh-get-fallback --memory-limit --max-body --max-message --write-buffer --header-timeout --body-timeout --idle-timeout --write-timeout --stdio-mode --children --max-children --child-inherit --child-env --child-dir --child-start-timeout --child-grace --drain --access-log-sample --log-level --log-format --config --print-config --check --help --version serve doctor token generate help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --listen)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --admin-listen)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --legacy-sse)
                    COMPREPLY=($(compgen -W "on off" -- "${cur}"))
                    return 0
                    ;;
                --allow-host)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-origin)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --shards)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ring-entries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --auth)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-anonymous)
                    COMPREPLY=($(compgen -W "on off" -- "${cur}"))
                    return 0
                    ;;
                --auth-resource)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --auth-server)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --auth-scope)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jwt-issuer)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jwt-audience)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jwt-keys)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jwt-algorithm)
                    COMPREPLY=($(compgen -W "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA" -- "${cur}"))
                    return 0
                    ;;
                --jwt-skew)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-connections-per-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-connections-per-principal)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-sessions-per-client)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-streams-per-client)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-body-memory-per-client)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-session-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-bad-token-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-sessions)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --session-idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --handshake-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keep-alive)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --listener-policy)
                    COMPREPLY=($(compgen -W "first latest" -- "${cur}"))
                    return 0
                    ;;
                --response-mode)
                    COMPREPLY=($(compgen -W "auto sse json" -- "${cur}"))
                    return 0
                    ;;
                --sse-after)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priming)
                    COMPREPLY=($(compgen -W "auto post off" -- "${cur}"))
                    return 0
                    ;;
                --retry)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --request-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --replay-events)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --replay-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --replay-ttl)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fresh-get-fallback)
                    COMPREPLY=($(compgen -W "on off" -- "${cur}"))
                    return 0
                    ;;
                --memory-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-body)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-message)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --write-buffer)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --header-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --body-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --write-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stdio-mode)
                    COMPREPLY=($(compgen -W "auto per-session shared" -- "${cur}"))
                    return 0
                    ;;
                --children)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-children)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --child-inherit)
                    COMPREPLY=($(compgen -W "all basic none" -- "${cur}"))
                    return 0
                    ;;
                --child-env)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --child-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --child-start-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --child-grace)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --drain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --access-log-sample)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "off error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__doctor)
            opts="-h --streams --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --streams)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__generate)
            opts="-h --help completions man help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__generate__subcmd__completions)
            opts="-h --help bash elvish fish powershell zsh"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__generate__subcmd__help)
            opts="completions man help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__generate__subcmd__help__subcmd__completions)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__generate__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__generate__subcmd__help__subcmd__man)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__generate__subcmd__man)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__help)
            opts="serve doctor token generate help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__help__subcmd__doctor)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__help__subcmd__generate)
            opts="completions man"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__help__subcmd__generate__subcmd__completions)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__help__subcmd__generate__subcmd__man)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__help__subcmd__serve)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__help__subcmd__token)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__serve)
            opts="-h --listen --admin-listen --path --legacy-sse --allow-host --allow-origin --shards --ring-entries --max-connections --auth --allow-anonymous --auth-resource --auth-server --auth-scope --jwt-issuer --jwt-audience --jwt-keys --jwt-algorithm --jwt-skew --max-connections-per-address --max-connections-per-principal --max-sessions-per-client --max-streams-per-client --max-body-memory-per-client --max-session-rate --max-bad-token-rate --max-sessions --session-idle-timeout --handshake-timeout --keep-alive --listener-policy --response-mode --sse-after --priming --retry --request-timeout --replay-events --replay-bytes --replay-ttl --fresh-get-fallback --memory-limit --max-body --max-message --write-buffer --header-timeout --body-timeout --idle-timeout --write-timeout --stdio-mode --children --max-children --child-inherit --child-env --child-dir --child-start-timeout --child-grace --drain --access-log-sample --log-level --log-format --config --print-config --check --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --listen)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --admin-listen)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --legacy-sse)
                    COMPREPLY=($(compgen -W "on off" -- "${cur}"))
                    return 0
                    ;;
                --allow-host)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-origin)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --shards)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ring-entries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --auth)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --allow-anonymous)
                    COMPREPLY=($(compgen -W "on off" -- "${cur}"))
                    return 0
                    ;;
                --auth-resource)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --auth-server)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --auth-scope)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jwt-issuer)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jwt-audience)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jwt-keys)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jwt-algorithm)
                    COMPREPLY=($(compgen -W "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA" -- "${cur}"))
                    return 0
                    ;;
                --jwt-skew)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-connections-per-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-connections-per-principal)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-sessions-per-client)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-streams-per-client)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-body-memory-per-client)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-session-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-bad-token-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-sessions)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --session-idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --handshake-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keep-alive)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --listener-policy)
                    COMPREPLY=($(compgen -W "first latest" -- "${cur}"))
                    return 0
                    ;;
                --response-mode)
                    COMPREPLY=($(compgen -W "auto sse json" -- "${cur}"))
                    return 0
                    ;;
                --sse-after)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priming)
                    COMPREPLY=($(compgen -W "auto post off" -- "${cur}"))
                    return 0
                    ;;
                --retry)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --request-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --replay-events)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --replay-bytes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --replay-ttl)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fresh-get-fallback)
                    COMPREPLY=($(compgen -W "on off" -- "${cur}"))
                    return 0
                    ;;
                --memory-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-body)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-message)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --write-buffer)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --header-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --body-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --write-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stdio-mode)
                    COMPREPLY=($(compgen -W "auto per-session shared" -- "${cur}"))
                    return 0
                    ;;
                --children)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-children)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --child-inherit)
                    COMPREPLY=($(compgen -W "all basic none" -- "${cur}"))
                    return 0
                    ;;
                --child-env)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --child-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --child-start-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --child-grace)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --drain)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --access-log-sample)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "off error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        moorline__subcmd__token)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _moorline -o nosort -o bashdefault -o default moorline
else
    complete -F _moorline -o bashdefault -o default moorline
fi
