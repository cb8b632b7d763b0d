// Package proof judges, from records made outside of every process under test,
// whether a volume had one writer at a time and lost nothing: the medium's log
// of accepted writes, the history of the WriterClaim, and the journals of the
// pods.
//
// Check is a pure function over the records; Watch makes that of the claim. A
// record with a hole is never taken for a good one.
//
// A write carries no epoch, so Check looks for any way to share the writes out
// among the epochs that breaks no rule. A write of a host that was granted the
// volume again later can then pass for one of the later epoch, unless somebody
// else writes in between and after it.
package proof
