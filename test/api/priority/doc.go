// Package priority tests with real API servers what they do first of what Moor asks
// them for, with the FlowSchemas that deploy/ gives them.
package priority
