"""ACL files of the access tests, whose expected answers were taken from Apache 4.9.4."""

from pathlib import Path

PLAIN_ACL = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
      - topicD=PUB
    groupPerms:
      # as a retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: "12345678"
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""
MORE_ACL = """\
accounts:
- accessKey: moreKeys
  secretKey: moreSecret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
"""


def acl_home(folder: Path, text: str = PLAIN_ACL, more: str | None = None) -> Path:
    """Create a rocketmqHome with these files."""
    (folder / "conf" / "acl").mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "plain_acl.yml").write_text(text)
    if more is not None:
        (folder / "conf" / "acl" / "more.yml").write_text(more)
    return folder
