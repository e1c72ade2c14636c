#!/usr/bin/env bash
# Writes man pages and shell completions, which the program makes of its own options, to where packages
# for Linux have them:
#   scripts/manual.sh PROGRAM FOLDER       FOLDER: /usr/local/share, ...
set -euo pipefail
program=$1
folder=$2
mkdir -p "$folder"/{man/man1,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}

# The page of a command, and those of the commands under it, which it lists.
pages() {
  local file="$folder/man/man1/agentcompile${1:+-${1// /-}}.1" name
  "$program" help $1 --man >"$file"
  sed -n '/^\.SH COMMANDS/,/^\.SH [^C]/s/^\.BR agentcompile\(.*\) (1)$/\1/p' "$file" | tr -d '\\' |
    while read -r name; do
      name=${name#-${1:+${1// /-}-}}
      pages "${1:+$1 }$name"
    done
}
pages ""
"$program" completions bash >"$folder/bash-completion/completions/agentcompile"
"$program" completions zsh >"$folder/zsh/site-functions/_agentcompile"
"$program" completions fish >"$folder/fish/vendor_completions.d/agentcompile.fish"
