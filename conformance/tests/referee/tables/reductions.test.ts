// The models of reductions give every bit that PyTorch computed on an H200, also of maxima whose input lay in another order.
import { testOperators } from "../../harness/referee/torch-operators.js";

testOperators("reductions", []);
testOperators("maxima", []);
