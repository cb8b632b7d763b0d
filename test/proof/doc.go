// Package proof judges from records whether a volume had one writer at a time
// and lost nothing: the write log of the storage target, the history of the
// WriterClaim, and the journals of the pods.
//
// The target keeps the write log and is under test itself: it could accept a
// write and not log it. A bed that records beneath the target (moor-dev up
// --record-below) gives a second log, of a process that the target cannot
// reach, and the two have to tell of the same writes.
//
// Check is a pure function over the records; Watch makes that of the claim. A
// record with a hole is never taken for a good one.
//
// A write carries no epoch, so Check looks for any way to share the writes out
// among the epochs that breaks no rule. A write of a host that was granted the
// volume again later can then pass for one of the later epoch, unless
// another writes in between and after it.
package proof
