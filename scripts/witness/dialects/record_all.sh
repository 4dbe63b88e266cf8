#!/usr/bin/env bash
# Regenerates conformance/vectors/dialects: record_all.sh [MICROXCALING_CHECKOUT DEEPGEMM_CHECKOUT TRITON_KERNELS]
# Packages are installed in out/witness/dialects (PyTorch is large). A recorder without a checkout does not run, and says so.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$here/../../../out/witness/dialects
microxcaling=${1:-} deepgemm=${2:-} triton=${3:-}
failed=0
export PYTHONDONTWRITEBYTECODE=1 ATEN_CPU_CAPABILITY=${ATEN_CPU_CAPABILITY:-avx512}

record() {
  "$venv/bin/python" "$here/$1" "${@:2}" || { echo "witness: $1 failed" >&2; failed=1; }
}

mkdir -p "$(dirname "$venv")"
python3 -I -m venv "$venv" || exit 1
install() { "$venv/bin/python" -I -m pip install --quiet "$@" || { echo "witness: could not install $*" >&2; exit 1; }; }
install torch==2.15.0 numpy==2.4.6 torchao==0.18.0 compressed-tensors==0.20.0 nvidia-modelopt==0.47.0 transformers==5.23.0 gguf==0.19.0 libggml-python==0.20.2.post1 accelerate
install --no-deps fbgemm-gpu-genai==1.9.0
install amd-quark==0.13 ninja
for recorder in torchao compressed modelopt gguf ggml fbgemm quark transformers; do record "${recorder}_dialects.py"; done
if [[ -n $microxcaling ]]; then record microxcaling_dialects.py "$microxcaling"; else echo "witness: microxcaling not asked: name a checkout" >&2; fi
if [[ -n $deepgemm ]]; then record deepgemm_dialects.py "$deepgemm"; else echo "witness: DeepGEMM not asked: name a checkout" >&2; fi
if [[ -n $triton ]]; then record triton_dialects.py "$triton" 0.22.1; else echo "witness: triton_kernels not asked: name its folder" >&2; fi
exit $failed
