// Package bench measures the lab: what one cell costs, and the making of its env, in Go's benchmark format.
//
//	go test -run '^$' -bench . -count 10 ./bench | tee new.txt && benchstat new.txt
package bench
