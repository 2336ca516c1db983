"""Texts of the page about delayed messages."""

from typing import Final

TEXTS: Final = {
    "delayed.title": ("Delayed messages", "延时消息"),
    "delayed.clock": ("Message time of {broker}: {time}", "{broker} 的消息时间：{time}"),
    "delayed.test_clock": ("test clock", "测试时钟"),
    "delayed.advance": ("Advance the test clock", "推进测试时钟"),
    "delayed.advance_about": (
        "Messages due by then are in their topics afterwards. The clock cannot go back.",
        "届时到期的消息将投递到各自主题。时钟不能回拨。",
    ),
    "delayed.amount": ("Amount", "数量"),
    "delayed.unit": ("Unit", "单位"),
    "delayed.unit_seconds": ("seconds", "秒"),
    "delayed.unit_minutes": ("minutes", "分钟"),
    "delayed.unit_hours": ("hours", "小时"),
    "delayed.unit_days": ("days", "天"),
    "delayed.others": (
        "{brokers}: Apache's brokers tell how many messages wait at each delay level, and since 5.x how many timers each "
        "topic has. They cannot list them by due time, cancel one by its id, or deliver one now.",
        "{brokers}：Apache Broker 只提供各延时级别的等待数量，5.x 还提供各主题的定时消息数量；"
        "不能按到期时间列出、按 ID 取消或立即投递。",
    ),
    "delayed.schedule": ("Records that wait at delay levels", "延时级别中等待的记录"),
    "delayed.line": ("Messages by the time at which they are due", "按到期时间统计"),
    "delayed.line_total": (
        "{total} messages wait, of all topics; at most {highest} for one bar.",
        "所有主题共有 {total} 条消息等待投递，单个时段最多 {highest} 条。",
    ),
    "delayed.cancelled": (
        "{count} of them are cancelled, and are counted until their time comes.",
        "其中 {count} 条已取消，到期前仍计入。",
    ),
    "delayed.cut": ("{count} messages are due later.", "另有 {count} 条到期更晚。"),
    "delayed.none": ("No message waits.", "没有等待投递的消息。"),
    "delayed.as_table": ("The same as a table", "以表格显示"),
    "delayed.due_from": ("Due from", "到期时间起"),
    "delayed.due_to": ("Due before", "到期时间止"),
    "delayed.levels": ("Messages by delay level", "按延时级别统计"),
    "delayed.levels_about": (
        "A bar is as long as the delay: its messages are due between now and then.",
        "条形长度表示延时时长：其消息将在此时间内到期。",
    ),
    "delayed.level": ("Level", "级别"),
    "delayed.level_name": ("Level {level}", "级别 {level}"),
    "delayed.delay": ("Delay", "延时"),
    "delayed.timers": ("Timers of {broker} by topic", "{broker} 各主题的定时消息"),
    "delayed.list": ("Messages by due time", "按到期时间列出"),
    "delayed.due": ("Due", "到期时间"),
    "delayed.by": ("Delayed by", "延时方式"),
    "delayed.by_level": ("level {level}", "级别 {level}"),
    "delayed.by_delay": ("a delay", "延时"),
    "delayed.by_time": ("a time", "指定时间"),
    "delayed.none_here": ("No message on this page matches.", "此页没有匹配的消息。"),
    "delayed.message": ("Delayed message {id}", "延时消息 {id}"),
    "delayed.gone": (
        "This message is not pending: it was delivered or cancelled.",
        "此消息已不在等待中：已投递或已取消。",
    ),
    "delayed.deliver": ("Deliver now", "立即投递"),
    "delayed.deliver_about": ("It is delivered now, and not again when it is due.", "现在投递，到期时不再投递。"),
    "delayed.cancel": ("Cancel the message", "取消消息"),
    "delayed.cancel_about": ("It is never delivered. This cannot be undone.", "消息将永不投递，无法撤销。"),
    "done.cancelled": ("The message is cancelled: it is never delivered.", "消息已取消，不会投递。"),
    "done.delivered": ("The message was delivered.", "消息已投递。"),
    "done.advanced": ("The clock was advanced.", "时钟已推进。"),
}
