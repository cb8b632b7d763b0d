// Package patrol compares, again and again, what the SNAP services show and the
// vendors' plugins have made with what the attachments of this DPU say.
//
// What differs is put into the queue of the reconciler, which is how devices come
// back after a restart of SNAP. What belongs to no attachment, by the API
// server's own answer, for longer than a period is removed. The patrol writes
// nothing to the API server, and never shows a device.
package patrol
