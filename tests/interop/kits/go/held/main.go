// Starts a server in a goroutine that ends, and waits to be killed.
package main

import (
	"fmt"
	"time"

	"pocketmq.org/kit/pocketmqtest"
)

func main() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv, err := pocketmqtest.Run()
		if err != nil {
			panic(err)
		}
		fmt.Println(srv.Broker)
	}()
	<-done
	time.Sleep(10 * time.Minute)
}
