// Package results keeps what the benchmarks measured: every sample with its
// time, its load and the invocation that took it, and nothing that follows from
// them. Summaries, verdicts and the table of docs/benchmarks.md are computed from
// the samples.
package results
