// Package archtest has one test, which keeps imports going down the floors.
package archtest
