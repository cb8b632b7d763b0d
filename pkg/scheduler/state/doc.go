// Package state is what the scheduler extender and the scheduler plugin know: an immutable index of
// claims, volumes, attachments and nodes of the host cluster, kept up to date
// by watches and swapped atomically, so that questions are answered without a
// lock and without the API server. When the API server is lost it serves on
// and says how old it is. It never writes to the cluster.
package state
