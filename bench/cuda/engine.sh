#!/usr/bin/env bash
# Compares with TransformerEngine on one GPU and records its layers: bench/cuda/engine.sh FOLDER
# Each part has a time limit, so that a part that hangs or fails costs only itself. A comparison that fails is repeated without
# captured steps, then without TransformerEngine, as long as SECONDS is below DEADLINE. FOLDER gets the rows of each comparison
# (npm run bench:cuda -- --from FILE --write puts them into the documents), the recorded layers, and log.txt.
set -uo pipefail
out=$1 deadline=${DEADLINE:-440}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root" || exit 1
mkdir -p "$out"

# runs a command within a number of seconds; its output goes to the log
part() {
  local limit=$1 status start=$SECONDS
  shift
  echo "== $* (at $SECONDS s)"
  timeout -k 5 "$limit" "$@"
  status=$?
  echo "== status $status after $((SECONDS - start)) s"
  return $status
}

compare() {
  local name=$1 limit=$2 options
  for options in "" "--no-graphs" "--alone"; do
    [ "$SECONDS" -lt "$deadline" ] || { echo "== $name $options: no time left"; return; }
    # shellcheck disable=SC2086
    part "$limit" node bench/cuda/main.mjs --only "$name" $options --json "$out/$name.json" && return
  done
}

{
  nvidia-smi
  compare layers 140
  compare experts 110
  compare optimizers 70
  part 150 python3 scripts/witness/te_layers.py "$out"
  for recipe in bf16 delayed current block; do
    [ -e "$out/te-layers-$recipe.json.gz" ] || [ "$SECONDS" -ge "$deadline" ] || part 60 python3 scripts/witness/te_layers.py "$out" "$recipe"
  done
  # why TransformerEngine chooses its attention
  NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 part 60 python3 "$here/te_server.py" layers 2 4096 4096 14336 32 8 0 </dev/null
} >"$out/log.txt" 2>&1
grep -E '^== ' "$out/log.txt"
