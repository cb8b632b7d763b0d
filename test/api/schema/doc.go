// Package schema tests what the CRDs alone promise: what the API server
// accepts, refuses, fills in and shows, for every kind of both clusters.
package schema
