// Package heartbeats lets many simulated nodes beat against real API servers,
// with clocks hours apart, and counts what that costs. Its tests carry the build
// tag api.
package heartbeats
