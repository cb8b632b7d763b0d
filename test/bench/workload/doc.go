// Package workload runs pods that write to volumes while benchmarks break what is
// around them, keeps all that is recorded of each volume, and judges it.
package workload
