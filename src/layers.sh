#!/bin/sh
# layers.sh SOURCE BUILD LAYER BELOW...: makes BUILD/layers/LAYER, a folder of links to LAYER itself and the layers that it
# may include. Meson asks for include folders below the source, hence the place beside it in the build folder.
set -eu
source=$1 build=$2 layer=$3
shift 3
mkdir -p "$build/layers/$layer"
for name in "$layer" "$@"; do
    ln -sfn "$source/$name" "$build/layers/$layer/$name"
done
