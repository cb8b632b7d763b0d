// Package admission is what every request to a volume passes before it reaches
// the data: the Limiter, which delays it, the Barrier, at which changes wait while
// a snapshot is taken, and the Gate, which turns it away once the right is gone.
//
// It knows neither the protocol nor who has the right.
package admission
