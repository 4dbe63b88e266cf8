"""Makes cuBLASLt write a log of its products. Import this before torch."""

import os

LOG = "/tmp/lockstep-te-cublaslt.log"
os.environ.update(CUBLASLT_LOG_LEVEL="5", CUBLASLT_LOG_FILE=LOG)
