package shop

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"pocketmq.org/kit/pocketmqtest"
)

const levelOf30Minutes = 16

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func newProducer(t *testing.T, srv *pocketmqtest.Server) rocketmq.Producer {
	t.Helper()
	client := must[rocketmq.Producer](t)(rocketmq.NewProducer(
		producer.WithNameServer([]string{srv.NameServer}), producer.WithGroupName("shop"), producer.WithRetry(0)))
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Shutdown() })
	return client
}

func TestAnUnpaidOrderTimesOutAfterHalfAnHour(t *testing.T) {
	srv := pocketmqtest.Start(t)
	topic := must[string](t)(srv.CreateTopic("Orders", pocketmqtest.Delay))
	timedOut := make(chan string, 10)
	client := must[rocketmq.PushConsumer](t)(rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{srv.NameServer}), consumer.WithGroupName("timeout"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)))
	err := client.Subscribe(topic, consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				timedOut <- string(message.Body)
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	defer client.Shutdown()
	order := primitive.NewMessage(topic, []byte("A1")).WithDelayTimeLevel(levelOf30Minutes)
	must[*primitive.SendResult](t)(newProducer(t, srv).SendSync(context.Background(), order))
	before := must[time.Time](t)(srv.Now())
	must[time.Time](t)(srv.AdvanceClock(29 * time.Minute))
	select {
	case early := <-timedOut:
		t.Fatalf("%s came after 29 minutes", early)
	case <-time.After(time.Second):
	}
	if after := must[time.Time](t)(srv.AdvanceClock(time.Minute)); !after.Equal(before.Add(30 * time.Minute)) {
		t.Fatalf("%v after %v", after, before)
	}
	select {
	case body := <-timedOut:
		if body != "A1" {
			t.Fatal(body)
		}
	case <-time.After(time.Minute):
		t.Fatal("the order did not time out")
	}
}

func TestOptions(t *testing.T) {
	srv := pocketmqtest.Start(t, pocketmqtest.WithSystemClock(),
		pocketmqtest.WithSettings("autoCreateTopicEnable=false", "brokerName=shop"))
	if apart := time.Since(must[time.Time](t)(srv.Now())); apart.Abs() > time.Minute {
		t.Fatal(apart)
	}
	if _, err := srv.AdvanceClock(time.Second); err == nil || !strings.Contains(err.Error(), "--test-clock") {
		t.Fatal(err)
	}
	if _, err := srv.CreateTopic("Quick", "QUICK"); err == nil || !strings.Contains(err.Error(), "message.type") {
		t.Fatal(err)
	}
	if !strings.Contains(srv.Output(), "broker[shop]") || !strings.HasPrefix(srv.Metrics, "http://127.0.0.1:") {
		t.Fatal(srv.Output(), srv.Metrics)
	}
	client := newProducer(t, srv)
	if _, err := client.SendSync(context.Background(), primitive.NewMessage("Unknown", []byte("x"))); err == nil {
		t.Fatal("a topic was created by a send")
	}
	topic := must[string](t)(srv.CreateTopic("Known", pocketmqtest.Normal))
	must[*primitive.SendResult](t)(client.SendSync(context.Background(), primitive.NewMessage(topic, []byte("x"))))
}

func TestServersAreApart(t *testing.T) {
	for _, name := range []string{"first", "second"} {
		name := name
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := pocketmqtest.Start(t)
			must[string](t)(srv.CreateTopic(name, pocketmqtest.FIFO))
		})
	}
}

func TestStopIsRepeatable(t *testing.T) {
	srv := must[*pocketmqtest.Server](t)(pocketmqtest.Run())
	for range [2]int{} {
		if err := srv.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := srv.Now(); err == nil {
		t.Fatal("a stopped server answers")
	}
}

func TestFailureToStartSaysWhy(t *testing.T) {
	if _, err := pocketmqtest.Run(pocketmqtest.WithSettings("brokerId=x")); err == nil || !strings.Contains(err.Error(), "brokerId") {
		t.Fatal(err)
	}
	t.Setenv("POCKETMQ", "/nowhere/pocketmq")
	if _, err := pocketmqtest.Run(); err == nil || !strings.Contains(err.Error(), "set POCKETMQ") {
		t.Fatal(err)
	}
}
