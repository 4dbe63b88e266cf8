// Stand-ins for the kernels of attention.
#include "conformance/tests/stand-in/touch.h"
#include "kernels/attention/calls.gen.h"

using namespace standin;

namespace lockstep {

namespace {

int64_t statisticsOf(const AttentionRule& p) { return int64_t{p.statisticBatches} * p.heads * p.queries; }
int64_t queryElements(const AttentionRule& p, int64_t width) { return p.queryRows * p.heads * width; }
int64_t keyElements(const AttentionRule& p, int64_t width) { return p.keyRows * p.keyHeads * width; }
int64_t pairsOf(const AttentionRule& p) { return int64_t{p.queries} * p.keys; }
int64_t biasElements(const AttentionRule& p) { return int64_t{p.biasBatches} * p.biasHeads * pairsOf(p); }

void readsRule(const AttentionRule& p) {
  readsWide(p.q, p.qType, queryElements(p, p.width));
  readsWide(p.k, p.qType, keyElements(p, p.width));
  readsWide(p.v, p.qType, keyElements(p, p.valueWidth));
  for (const int32_t* each : {p.queryLengths, p.queryStarts, p.keyLengths, p.keyStarts}) {
    reads(each, bytesOf(p.lengthCount, 32));
  }
  reads(p.pages, bytesOf(int64_t{p.batch} * p.pagesOfSequence, 32));
  reads(p.mask, bytesOf(int64_t{p.maskBatches} * p.maskHeads * pairsOf(p), 8));
  readsWide(p.bias, p.biasType, biasElements(p));
  readsF32(p.slopes, int64_t{p.slopeBatches} * p.heads);
  readsF32(p.sinks, p.heads);
}

}  // namespace

cudaError_t launchAttention(const AttentionParams& p, cudaStream_t stream) {
  const AttentionRule& rule = p.rule;
  on(stream);
  readsRule(rule);
  writes(p.workspace, bytesOf(p.tiles, 32));
  writesWide(p.out, rule.qType, queryElements(rule, rule.valueWidth));
  writesF32(p.lse, statisticsOf(rule));
  writesF32(p.maxLogits, rule.heads);
  return cudaSuccess;
}

cudaError_t launchAttentionBackward(const AttentionBackwardParams& p, cudaStream_t stream) {
  const AttentionRule& rule = p.rule;
  on(stream);
  readsRule(rule);
  for (const void* each : {p.grad, p.result}) readsWide(each, rule.qType, queryElements(rule, rule.valueWidth));
  readsF32(p.lse, statisticsOf(rule));
  writes(p.workspace, bytesOf(p.tiles, 32));
  writesWide(p.dq, rule.qType, queryElements(rule, rule.width));
  writesWide(p.dk, rule.qType, keyElements(rule, rule.width));
  writesWide(p.dv, rule.qType, keyElements(rule, rule.valueWidth));
  writesWide(p.dbias, p.dbiasType, biasElements(rule));
  writesF32(p.dsinks, rule.heads);
  return cudaSuccess;
}

}  // namespace lockstep
