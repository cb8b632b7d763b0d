// Package writer holds the rules of the right to write a single-writer volume
// (docs/safety.md), and is the only code that changes the status of a
// WriterClaim. The files by the numbers of the rules:
//
//   - claim.go is the state machine under all of them.
//   - Rule 1, who is granted the right: grant.go.
//   - Rule 2, who may show the volume: expose.go.
//   - Rule 3, what frees a claim: detach.go in an orderly detach, receipt.go in a fence,
//     with lease.go for the bound of a lease, power.go for the power of the DPU and vouch.go
//     for an operator's word; silent.go is about a DPU that is silent after its own receipt.
//   - Several rules: medium.go is what a storage that knows epochs adds to 2 and 3;
//     lost.go is 1, 2 and 3 for a claim that has lost its record, and the last grant,
//     by which that is noticed.
//
// What no rule allows is refused, which is rule 4.
//
// Values in, values out: no client, no cache, no events, no clock. Callers read
// from the API server itself what a rule is asked about, and write what it
// returns with the resourceVersion that was read.
package writer
