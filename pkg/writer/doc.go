// Package writer holds the rules of the right to write a single-writer volume
// (docs/safety.md), and is the only code that changes the status of a
// WriterClaim. Each file carries the number of its rule: grant.go is 1, expose.go
// 2, receipt.go, detach.go and lease.go 3, medium.go what the storage adds to 2 and 3; claim.go is the state machine under
// them. What no rule allows is refused, which is rule 4.
//
// Values in, values out: no client, no cache, no events, no clock. Callers read
// from the API server itself what a rule is asked about, and write what it
// returns with the resourceVersion that was read.
package writer
