"""Configuration: which keys can be changed, and their change. Charts: samples, and the same as a table."""

import time


def test_a_key_that_can_be_changed_is_changed(server, browser):
    page = browser.get("/configuration?q=fileReservedTime").text
    assert "/configuration/key?broker=" in page
    (name,) = {link.split("broker=")[1].split("&")[0] for link in page.split('"') if link.startswith("/configuration/key")}
    form = f"/configuration/key?broker={name}&key=fileReservedTime"
    done = browser.submit(form, "/configuration/change", broker=name, key="fileReservedTime", value="5")
    assert "The configuration is changed." in done.text
    assert '<td class="text">5</td>' in done.text


def test_other_keys_are_shown_and_not_changed(server, browser):
    page = browser.get("/configuration?q=storePathRootDir").text
    assert "storePathRootDir" in page
    assert "/configuration/key?" not in page
    name = browser.get("/configuration").text.partition("/configuration?broker=")[2].partition('"')[0]
    assert browser.get(f"/configuration/key?broker={name}&key=storePathRootDir").status_code == 400
    for key, value in (
        ("storePathRootDir", "/tmp"),
        ("fileReservedTime", "1\nbrokerPermission=0"),
        ("fileReservedTime", "x"),
    ):
        answer = browser.submit("/topics", "/configuration/change", broker=name, key=key, value=value)
        assert answer.status_code in (400, 502)
    assert browser.submit("/topics", "/configuration/change", broker="other", key="a", value="1").status_code == 400


def test_charts_have_a_sample_of_each_broker_and_a_table(browser):
    for _ in range(100):
        brokers = browser.get("/charts/data").json()["brokers"]
        if brokers:
            break
        time.sleep(0.1)
    ((name, samples),) = brokers.items()
    time_ms, in_rate, out_rate, disk_ratio = samples[0]
    assert abs(time_ms - time.time() * 1000) < 60_000
    assert in_rate >= 0 and out_rate >= 0 and 0 <= disk_ratio <= 1
    assert f"<td>{name}</td>" in browser.get("/charts").text
