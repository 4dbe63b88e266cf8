// The models of attention give every bit that PyTorch computed on an H200.
import { testOperators } from "../../harness/referee/torch-operators.js";

testOperators("attention", ["aten::_scaled_dot_product_attention_math"]);
