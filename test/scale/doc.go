// Command scale measures Moor with many hosts on one machine: two API servers, hosts
// and DPUs that are simulated by light clients, ten settled volumes on each host, and
// the real programs. docs/benchmarks.md says what is measured.
package main
