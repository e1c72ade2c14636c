"""The page at / in headless Chromium: a chat that needs nothing but the server."""

import browser
import pytest
import test_serve_tools
from served import Server, compiled_once


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    _, package = compiled_once(tmp_path_factory, "scripted", test_serve_tools.write, "--max-context", 2048, "--chunk", 64)
    with Server(package, "--alias", "scripted <b>model</b>") as server:
        yield server


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if browser.chromium() is None:
        pytest.skip("there is no Chromium: scripts/setup.sh installs it on Debian (chromium-headless-shell)")
    browser_ = browser.Browser(tmp_path_factory.mktemp("chromium"))
    yield browser_
    browser_.close()


def ask(tab, text):
    """What the last answer shows, once it is there."""
    tab.run(f"document.querySelector('#text').value = {text!r}, document.querySelector('#form').requestSubmit()")
    tab.until("document.querySelector('#send').textContent === 'Send'")
    return tab.run("[...document.querySelectorAll('article')].at(-1).innerText")


@pytest.mark.parametrize("width, dark", [(1200, False), (390, True)])
def test_a_chat(server, chromium, width, dark):
    tab = chromium.open(server.url + "/", width=width, dark=dark, drawn="#form")
    tab.until("document.querySelector('h1').textContent.includes('scripted')")
    assert tab.run("document.querySelector('h1').textContent") == "scripted <b>model</b>"
    assert ask(tab, "say plain") == "Good day, all."
    thought = ask(tab, "say think")
    assert thought.startswith("Reasoning") and thought.endswith("It is 4.")
    assert ask(tab, "<img src=x onerror='window.taken = 1'> plain") == "Good day, all."
    assert tab.run("document.querySelectorAll('article').length") == 6
    assert tab.run("document.documentElement.scrollWidth <= innerWidth") and not tab.run("window.taken")
    background = tab.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 200) == dark
    tab.run("document.querySelector('#reset').click()")
    assert tab.run("document.querySelectorAll('article').length") == 0
    assert all(url.startswith((server.url, "data:")) for url in tab.requests())


def test_one_of_several_models(server, chromium, tmp_path, tmp_path_factory):
    _, package = compiled_once(tmp_path_factory, "scripted", test_serve_tools.write, "--max-context", 2048, "--chunk", 64)
    for name in ("first", "second"):
        (tmp_path / name).symlink_to(package)
    tab = chromium.open(server.url + "/", drawn="#form")
    tab.until("document.querySelector('h1').textContent.includes('scripted')")
    assert tab.run("document.querySelector('#models').hidden")
    with Server(f"--models={tmp_path}") as several:
        tab = chromium.open(several.url + "/", drawn="#form")
        tab.until("document.querySelector('h1').textContent === 'first'")
        assert tab.run("[...document.querySelector('#models').options].map((each) => each.value).join()") == "first,second"
        assert ask(tab, "say plain") == "Good day, all."
        tab.run("document.querySelector('#models').value = 'second', document.querySelector('#models').dispatchEvent(new Event('change'))")
        (worker,) = several.workers()
        assert ask(tab, "say plain") == "Good day, all." and tab.run("document.title") == "second"
        assert several.workers() != [worker]


def test_a_new_chat_knows_nothing_of_the_answer_that_it_ends(server, chromium):
    tab = chromium.open(server.url + "/", drawn="#form")
    tab.run(
        """new MutationObserver((_, watch) => {
             const answer = document.querySelector('article.assistant > span:last-of-type');
             if (answer?.textContent) watch.disconnect(), document.querySelector('#reset').click();
           }).observe(document.querySelector('#talk'), { childList: true, subtree: true }), 0"""
    )
    tab.run("document.querySelector('#text').value = 'say plain', document.querySelector('#form').requestSubmit()")
    tab.until("document.querySelector('#send').textContent === 'Send'")
    assert tab.run("document.querySelectorAll('article').length") == 0 and tab.run("messages.length") == 0


def ask_at(tab, temperature, text):
    tab.run(f"document.querySelector('#temperature').value = {temperature!r}")
    shown = ask(tab, text)
    tab.run("document.querySelector('#temperature').value = ''")
    return shown


def test_an_error_is_shown(server, chromium):
    tab = chromium.open(server.url + "/", drawn="#form")
    assert "from 0 to 100" in ask_at(tab, "-3", "plain")
    assert ask(tab, "say plain") == "Good day, all."
