#!/bin/sh
# embed.sh FILE: prints the file as C string literals, one per line, to be included as an initialiser. Comments are left out.
set -eu
sed -e '/^ *--/d' -e 's/  *-- .*$//' -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$/\\n"/' "$1"
