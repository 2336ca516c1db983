// A tour of RocketMQ with the Go client: sends and consumes messages of each kind, one kind after the other.
//
//	go run . 127.0.0.1:9876
//	go run . 127.0.0.1:9876 transaction trace
//
// Each file beside this one shows one kind and can be copied with clients.go. A line tells what was seen.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var kinds = []struct {
	name string
	run  func(nameServer string) (string, error)
}{
	{"sync", tourSync},
	{"async", tourAsync},
	{"oneway", tourOneway},
	{"ordered", tourOrdered},
	{"delay-level", tourDelayLevel},
	{"delay-time", tourDelayTime},
	{"batch", tourBatch},
	{"tag", tourTag},
	{"sql92", tourSql92},
	{"transaction", tourTransaction},
	{"broadcast", tourBroadcast},
	{"request-reply", tourRequestReply},
	{"trace", tourTrace},
}

func main() {
	rlog.SetLogLevel("fatal") // the client calls every rollback an error
	nameServer, chosen := os.Args[1], os.Args[2:]
	for _, kind := range kinds {
		if len(chosen) > 0 && !slices.Contains(chosen, kind.name) {
			continue
		}
		line, err := kind.run(nameServer)
		if err != nil {
			fmt.Fprintln(os.Stderr, kind.name+":", err)
			os.Exit(1)
		}
		fmt.Println(kind.name+":", line)
	}
}
