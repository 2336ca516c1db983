package main

import (
	"context"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var states = map[string]primitive.LocalTransactionState{
	"COMMIT_MESSAGE":   primitive.CommitMessageState,
	"ROLLBACK_MESSAGE": primitive.RollbackMessageState,
	"UNKNOW":           primitive.UnknowState,
}

// local is the producer's own transaction.
type local struct{}

// ExecuteLocalTransaction is called once the message is stored, and not yet delivered.
func (local) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return states[string(message.Body)]
}

// CheckLocalTransaction answers the broker's question about a message of UNKNOW, or of a producer that has ended.
func (local) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}

// tourTransaction: a message that is delivered if the producer's own transaction succeeds. The broker asks if it has not
// been told.
func tourTransaction(nameServer string) (string, error) {
	const topic, group = "TourTransaction", "TourTransactionGroup"
	p, err := rocketmq.NewTransactionProducer(local{}, producer.WithNameServer([]string{nameServer}),
		producer.WithGroupName("TourTransactionProducer"), producer.WithInstanceName("TourTransactionProducer"))
	if err != nil {
		return "", err
	}
	if err := p.Start(); err != nil {
		return "", err
	}
	defer p.Shutdown()
	for state := range states {
		message := primitive.NewMessage(topic, []byte(state))
		// The broker asks after a second, not after transactionTimeOut.
		message.WithProperty(primitive.PropertyCheckImmunityTimeInSeconds, "1")
		if _, err := p.SendMessageInTransaction(context.Background(), message); err != nil {
			return "", err
		}
	}
	bodies, err := consume(nameServer, group, topic, everything, 2)
	return "3 sent, consumed " + list(bodies), err
}
