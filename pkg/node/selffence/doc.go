// Package selffence keeps a DPU's promise to withdraw its single-writer volumes by
// itself unless its lease is renewed, which every answered heartbeat does.
//
// It withdraws them when the lease ends, and feeds the machine's watchdog only
// while the lease is good or nothing is shown: a driver that hangs, or a SNAP that
// does not obey, ends with a reset of the machine. What a lease is worth to others
// is said in docs/decisions/0007-lease-bound.md. It never reads or writes the API
// server, and does not know which volumes there are.
package selffence
