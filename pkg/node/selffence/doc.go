// Package selffence keeps a DPU's promise to stop by itself: what single-writer
// volumes it shows it shows only for as long as its lease is renewed, which every
// answered heartbeat does.
//
// It takes them away when the lease ends, and feeds the machine's watchdog only
// while the lease is good or nothing is shown: so a driver that stands still, or a
// SNAP that does not obey, ends with the machine. What a lease is worth to others
// is said in docs/decisions/0007-lease-bound.md.
package selffence
