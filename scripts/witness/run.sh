#!/usr/bin/env bash
# Regenerates conformance/vectors/{cuda,ml-dtypes,gfloat,torch}-*.json, mmasim.json and tokenizers.json: scripts/witness/run.sh [--digests]
# Missing packages are installed in out/witness (torch is large). Reports on stderr what it could not do, and then exits with 1.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$here/../../out/witness
venv=$out/venv
cuda=$out/cuda
cuda_version=13.5.37
cuda_packages=("nvidia-cuda-runtime==$cuda_version" "nvidia-cuda-crt==13.5.37" "nvidia-cuda-cccl==13.3.5.0.6")
failed=0
export PYTHONDONTWRITEBYTECODE=1

skip() {
  echo "witness: $1" >&2
  failed=1
}

python() { "$venv/bin/python" "$@"; }

install() { python -I -m pip install --quiet "$@"; }

witness() {
  local script=$1
  shift
  install "$@" || { skip "$script not run: could not install $*"; return; }
  python "$here/$script" || skip "$script failed"
}

witness_cuda() {
  local program=$out/cuda_conversions include=$cuda/nvidia/cu13/include
  command -v g++ >/dev/null || { skip "CUDA headers not asked: no g++"; return; }
  install --no-deps --upgrade --target "$cuda" "${cuda_packages[@]}" || { skip "CUDA headers not asked: could not install them"; return; }
  g++ -std=c++17 -O3 -isystem "$include" "$here/cuda_conversions.cc" -o "$program" || { skip "cuda_conversions.cc did not compile"; return; }
  python "$here/cuda_vectors.py" "$program" "$cuda_version" "$@" || skip "cuda_vectors.py $* failed"
}

mkdir -p "$out"
python3 -I -m venv --system-site-packages "$venv" || { echo "witness: nothing done: python3 -I -m venv failed" >&2; exit 1; }
install numpy==2.4.6 || { echo "witness: nothing done: could not install numpy" >&2; exit 1; }
witness_cuda
[[ ${1:-} == --digests ]] && witness_cuda --digests
witness ml_dtypes_vectors.py ml_dtypes==0.6.0
witness gfloat_vectors.py gfloat==0.5.2
witness torch_vectors.py torch==2.15.0
witness mmasim_vectors.py mmasim==2.1.1
if "$here/../fetch-model" >/dev/null; then
  witness tokenizers_vectors.py tokenizers==0.23.3 gguf==0.19.0
else
  skip "tokenizers_vectors.py not run: it needs the model"
fi
exit $failed
