#!/usr/bin/env bash
# What people do with curl. Arguments: the base URL, the API key.
set -euo pipefail
base=$1 key=$2 root=${1%/v1}

ask() { # PATH BODY [OPTION...]
  curl -sS --fail-with-body --max-time 20 "$base/$1" -H "Authorization: Bearer $key" \
    -H 'content-type: application/json' -d "$2" "${@:3}"
}
status() { curl -sS -o /dev/null --max-time 20 -w '%{http_code}' "$@"; }
has() { # TEXT within what comes in
  local got
  got=$(cat)
  [[ $got == *"$1"* ]] || { echo "no $1 in: $got" >&2; exit 1; }
}
is() { [[ $1 == "$2" ]] || { echo "$1 instead of $2" >&2; exit 1; }; }

curl -sS "$base/models" -H "Authorization: Bearer $key" | has '"id":"toy"'
curl -sS "$root/health" | has '"status":"ready"'
curl -sS "$root/metrics" | has 'octavo_requests_running'
curl -sS "$root/openapi.json" | has '"openapi":"3.1'
curl -sSI "$root/health" | has 'content-type: application/json'

ask completions '{"prompt": "a", "max_tokens": 4, "temperature": 0}' | has '"text":"bcdd"'
ask chat/completions '{"messages": [{"role": "user", "content": "hi"}], "temperature": 0}' | has '"content":"Helloé!"'
ask chat/completions '{"messages": [{"role": "user", "content": "hi"}], "stream": true}' -N | has 'data: [DONE]'
ask responses '{"input": "hi", "temperature": 0}' | has '"text":"Helloé!"'
ask responses '{"input": "hi", "stream": true}' -N | has 'event: response.completed'

is "$(status "$base/models")" 401
is "$(status "$base/nothing" -H "Authorization: Bearer $key")" 404
is "$(status "$base/completions" -H "Authorization: Bearer $key")" 405
is "$(status "$base/completions" -H "Authorization: Bearer $key" -d '{}')" 415 # curl -d alone sends a form
is "$(status "$base/completions" -H "Authorization: Bearer $key" -H 'content-type: application/json' -d '{"prompt": 1}')" 400

# Gone after a moment, in the middle of a stream.
ask completions '{"prompt": "a", "max_tokens": 1900, "ignore_eos": true, "stream": true}' -N -m 0.05 >/dev/null 2>&1 || true
