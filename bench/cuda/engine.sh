#!/usr/bin/env bash
# Compares with TransformerEngine on one GPU and records its layers: bench/cuda/engine.sh FOLDER
# Each part has a time limit, so that a part that hangs or fails costs only itself. At the end, a comparison that failed is repeated
# without captured steps, then without TransformerEngine, as long as fewer than DEADLINE seconds have passed. FOLDER gets the rows of
# each comparison (npm run bench:cuda -- --from FILE --write puts them into the documents), the recorded layers, and log.txt.
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

# a comparison without a result yet; it gets a number of seconds
compare() {
  local name=$1 limit=$2
  shift 2
  [ -e "$out/$name.json" ] || part "$limit" node bench/cuda/main.mjs --only "$name" "$@" --json "$out/$name.json"
}

compare_all() {
  local each
  for each in "layers 140" "experts 110" "optimizers 70"; do
    [ "$SECONDS" -lt "$deadline" ] || { echo "== $each $*: no time left"; continue; }
    # shellcheck disable=SC2086
    compare $each "$@"
  done
}

{
  nvidia-smi
  part 150 python3 scripts/witness/te_layers.py "$out"
  compare_all
  # why TransformerEngine chooses its attention
  NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 part 60 python3 "$here/te_server.py" layers 2 4096 4096 14336 32 8 0 </dev/null
  compare_all --no-graphs
  compare_all --alone
  for recipe in bf16 delayed current block; do
    [ -e "$out/te-layers-$recipe.json.gz" ] || [ "$SECONDS" -ge "$deadline" ] || part 60 python3 scripts/witness/te_layers.py "$out" "$recipe"
  done
} >"$out/log.txt" 2>&1
grep -E '^== ' "$out/log.txt"
