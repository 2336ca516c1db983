package main

import (
	"context"
	"slices"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// tourTrace: clients with a trace send what they did with a message to RMQ_SYS_TRACE_TOPIC, which mqadmin queryMsgTraceById
// reads. The topic must exist: the broker creates it with traceTopicEnable=true.
func tourTrace(nameServer string) (string, error) {
	const topic, group = "TourTrace", "TourTraceGroup"
	traces := &primitive.TraceConfig{
		Access: primitive.Local, Resolver: primitive.NewPassthroughResolver([]string{nameServer}), GroupName: "TourTraces",
	}
	p, err := startProducer(nameServer, "TourTraceProducer", producer.WithTrace(traces))
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	result, err := p.SendSync(context.Background(), primitive.NewMessage(topic, []byte("traced")))
	if err != nil {
		return "", err
	}
	r := newReceived()
	c, err := startConsumer(nameServer, group, topic, everything, r.handle, consumer.WithTrace(traces))
	if err != nil {
		return "", err
	}
	defer c.Shutdown()
	if _, err := r.wait(1); err != nil {
		return "", err
	}
	events, err := eventsOf(nameServer, result.MsgID)
	return "of the message: " + list(events), err
}

// eventsOf reads the trace of one message: sent, before its consumption, and after it.
func eventsOf(nameServer, msgID string) (events []string, err error) {
	const traces = "RMQ_SYS_TRACE_TOPIC"
	records := newReceived()
	c, err := startConsumer(nameServer, "TourTraceReader", traces, everything, records.handle)
	if err != nil {
		return nil, err
	}
	defer c.Shutdown()
	for count := 1; len(events) < 3; count++ {
		bodies, err := records.wait(count)
		if err != nil {
			return nil, err
		}
		for _, body := range bodies {
			for _, record := range strings.Split(body, "\x02") { // fields are separated by \x01, the first is the event's
				event, rest, _ := strings.Cut(record, "\x01")
				if strings.Contains(rest, msgID) && !slices.Contains(events, event) {
					events = append(events, event)
				}
			}
		}
	}
	slices.Sort(events)
	return events, nil
}
