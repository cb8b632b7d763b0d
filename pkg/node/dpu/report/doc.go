// Package report says how this DPU is, for its heartbeat: its SNAP services, its
// vendor plugins and its host. It decides nothing, and writes nothing.
package report
